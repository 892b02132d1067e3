"""What every program over rows shares: how rows lie on the chip, what happens to them there, and the launch."""
