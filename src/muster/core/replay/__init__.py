"""Replay: a trace of asks driven through the functions that place and promise: what would this fleet have done?"""
