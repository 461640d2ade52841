"""One file per API family; each opens with its versions and what each version added."""
