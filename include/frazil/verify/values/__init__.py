"""What a record must have become: own readings of values, by the promises of the documents."""
