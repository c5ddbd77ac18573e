"""The federation over NVFLARE: kits and certificates, the programs at both ends, and jobs.

No other package imports NVFLARE. Nothing here decides what leaves a site: `site.agent` does.
"""
