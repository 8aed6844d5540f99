"""For all tests."""

import signal

# A run that was started in the background ignores interrupts, and so would every process that a test starts and
# interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
