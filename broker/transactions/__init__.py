"""Transactions: the coordinator of transactional ids, its records in __transaction_state, and its markers."""
