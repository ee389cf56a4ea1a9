"""The machine that is simulated: event loop, network, disks, the metadata store, processes."""
