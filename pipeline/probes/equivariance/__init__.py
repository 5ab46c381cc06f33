"""Measures equivariance f(g x) = rho(g) f(x) and invariance f(g x) = f(x) in the same way for every system (document
003, equations 0 and 3).

f is a layer of a network. Its values are those of some capsules, which the system's module `equivariance` computes. g
rotates, shifts, scales or shears the content of the image x (`transformations`). rho predicts how the layer's values
change. It is the action that theory gives, such as the composition of poses, or a linear map fitted to training images
(`actions`). Errors are relative to how much f varies over images (`errors`). There are errors for finite g, and for the
derivative with respect to g at the identity. Functions whose equivariance is known are measured as well (`controls`).
"""
