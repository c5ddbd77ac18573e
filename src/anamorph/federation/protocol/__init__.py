"""What travels between coordinator and sites: messages, questions, answers, errors, identities."""
