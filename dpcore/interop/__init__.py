"""Connections to other packages, one module each, imported only by who wants one."""
