cpdef list regions(object probs, object params, int n_window=*)
cpdef list to_cs(list found)
