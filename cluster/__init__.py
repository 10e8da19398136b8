"""The only code that talks to the API server: it reads facts and waits. It changes nothing."""
