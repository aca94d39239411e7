"""A relay: a meeting point with one public port for processes that can only dial out, which need not trust it.

Every connection begins either with a TLS ClientHello, whose server name says where its bytes go, or with the token of a
data connection. A process keeps a *control connection* to the relay, its registration; for each caller the relay asks
there for a *data connection*, which the process dials. TLS between caller and process passes through unopened.
"""
