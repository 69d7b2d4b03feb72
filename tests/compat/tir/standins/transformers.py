"""Stands in for Hugging Face's transformers: gigabytes that the SDK imports for one function nobody calls here."""


class AutoModel:
    """Only a name to import."""
