"""The coordinator: it asks all sites, adds up their answers, and runs fits and analyses."""
