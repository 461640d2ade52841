"""The scenarios that come with Strandline; docs/verify.md tells what each is for."""
