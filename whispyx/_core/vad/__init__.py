"""Voice activity: the Silero network, regions of speech, and the way back from their time line.

For a run, in Cython: ``VadModel.load(path, n_threads=n)`` once per path, ``model.run(samples, True, abort, n)`` and
``model.probabilities`` (detect); ``to_cs(regions(probabilities, params))`` (regions); ``gather_speech(samples,
regions_cs, overlap_s)`` gives the samples to recognise and a TimeMap with ``map_segment``, ``map_token``,
``map_instant`` (t_dtw) and ``map_seconds`` (words) (timemap).
"""
