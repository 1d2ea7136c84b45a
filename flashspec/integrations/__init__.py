"""Other libraries behind protocols of FlashSpec; each module needs its own library."""
