"""WHERE OBJECTS LIVE: S3 servers behind contracts/objects.py."""
