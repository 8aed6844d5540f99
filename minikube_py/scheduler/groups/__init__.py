"""Groups of pods that are scheduled together: behind upstream's gates GenericWorkload and GangScheduling."""
