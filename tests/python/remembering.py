"""A registrar that remembers what it was told."""

import commpool.registrars


class Remembering(commpool.registrars.Registrar):
    """`failure`, where it is set, is what `add` raises."""

    name = "library"

    def __init__(self):
        self.traits, self.registered, self.ended, self.failure = None, {}, 0, None

    def check(self, traits):
        self.traits = traits

    def add(self, address, nbytes):
        if self.failure is not None:
            raise self.failure
        self.registered[address] = nbytes
        return "handle", address

    def remove(self, address, nbytes, registered):
        assert registered == ("handle", address)
        del self.registered[address]

    def end(self):
        self.ended += 1
