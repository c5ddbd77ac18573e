"""The same fit across sites that may not share images: sums leave a site, and nothing else.

A `coordinator.FederatedSites` asks `agent.SiteAgent`s through a `transport.Transport`; every site
enforces its own `policy.Policy`, and `secure_sum` hides the sums of each behind those of all.
"""
