"""One module for each kind of study of capsule regression, each with `run(inputs, study, keep_at)`.

`keep_at` returns the checkpoint of a fit; None: no fit is kept.
"""
