"""HOW OTHERS SPEAK TO US: each dialect is translation only and knows no other."""
