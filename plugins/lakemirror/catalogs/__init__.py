"""Source and mirror catalogs behind two small ports; the kind is chosen by `type` in the configuration."""
