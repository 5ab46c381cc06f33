"""Measures equivariance f(g x) = rho(g) f(x) and invariance f(g x) = f(x) in the same way for every system (document
003, equations 0 and 3).

f is a layer of a network: values of some capsules, which the system's module `equivariance` reads off a model. g
turns, shifts, scales or shears the content of the image x (`transformations`). rho predicts how the layer's values
change: by the action that theory gives, such as the composition of poses, or by a linear map fitted to training images
(`actions`). Errors are relative to how much f varies over images (`errors`), for finite g and for the derivative with
respect to g at the identity. Functions whose equivariance is known are measured as well (`controls`).
"""
