"""The federation over NVFLARE: kits, the programs at both ends, and who starts them.

Nothing outside this folder imports NVFLARE, and nothing here decides what leaves a site: that is
`federation.agent`.
"""
