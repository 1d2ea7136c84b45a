"""Accept/reject functions that are not backends: callables of rows, drafts and coins, judged promise by promise."""
