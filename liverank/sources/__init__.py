"""Consumes streams of message brokers into a graph: `liverank consume`.

    session  connects, resumes at the stored positions, and connects again after growing pauses
    consumer groups of messages to batches: settles, sends, splits refused groups, dead letters
    reports  what the consumer tells the server about itself
    settling, messages  what the messages say, without any broker
    broker, redis, nats, kafka, rabbitmq  the brokers, through FastStream

Needs the client and the extra `sources`, and no part of the service.
"""
