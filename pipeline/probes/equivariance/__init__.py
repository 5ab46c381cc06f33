"""Measures equivariance f(g x) = rho(g) f(x) and invariance f(g x) = f(x) in the same way for every system (document
003, equations 0 and 3).

f is a layer of a network: numbers of some capsules, read off a model by the system's module `equivariance`. g turns,
shifts, scales or shears the content of the image x (`transformations`). rho is the action that theory gives the layer's
numbers, such as the composition of poses, or a linear map fitted to training images (`actions`). Errors are relative to
how much f varies over images (`errors`), for finite g and for the derivative at the identity. Functions whose
equivariance is known are measured as well (`controls`).
"""
