"""Mutation testing: which changes of a module do its tests not notice?"""
