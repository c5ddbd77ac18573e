"""The coordinator: it asks all sites, adds up their masked answers, and runs the fit."""
