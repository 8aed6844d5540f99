"""GPUs by thousandths, device by device, and policies that pack them."""
