"""What a component uses to reach the API: transport, informers, work queues."""
