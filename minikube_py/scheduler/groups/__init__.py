"""Pod groups that are scheduled together, behind upstream's gates GenericWorkload and GangScheduling."""
