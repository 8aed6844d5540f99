"""GPUs shared by thousandths, per device, and policies that pack them."""
