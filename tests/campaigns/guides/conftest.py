from tests.wire.conftest import gate, polite

__all__ = ["gate", "polite"]
