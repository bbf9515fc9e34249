"""Patches of PyIceberg 0.12 in this process: importing a module applies its patches. Tests fail once one is needless."""
