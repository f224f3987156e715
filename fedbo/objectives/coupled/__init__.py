"""Problems whose agents share a resource: plants, toys and a network's flow."""
