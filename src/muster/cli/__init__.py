"""The command line: a thin skin over the SDK. Leans on click; on the server only for `up`, which becomes it."""
