"""Law extraction: from explicit integers to the law that a backend really implements.

With inverse-CDF draws and integer coins a backend is a step function of every integer it reads. ``locate``
finds the steps, ``extract`` turns them into acceptance probabilities and draw laws, ``judge`` compares these
with the spec's exact ones. No statistics, no seeds to tune: the result is a certificate, not a p-value.
"""
