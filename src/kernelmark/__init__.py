"""kernelmark: is this kernel right, and how fast is it really, next to everything else I could use?"""
