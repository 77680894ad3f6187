"""What the finished handlers of the five components look like."""

from __future__ import annotations

from workloads.relay.facts import COMPONENTS

SERVICES = {
    "intake": '''"""Intake: takes orders in and says that they were placed."""


def accepts(command):
    return command["quantity"] > 0


def label(n):
    return f"A-{n}"


def number(n):
    return n


def emits(command):
    return "order.placed" if command["quantity"] >= 1 else None
''',
    "pricing": '''"""Pricing: quotes what was placed and says that it was priced."""


def hears(topic):
    return topic == "order.placed"


def stores(event):
    return "sku" in event


def serves(path):
    return path.startswith("/quotes")


def quote(quantity, cents):
    return quantity * cents


def shown(cents):
    return f"{cents / 100:.2f}"


def accepts(command):
    return command["cents"] > 0


def emits(command):
    return "order.priced"
''',
    "billing": '''"""Billing: writes an invoice for what was priced."""


def hears(topic):
    return topic == "order.priced"


def stores(event):
    return event["cents"] > 0


def serves(path):
    return path.startswith("/invoices")


def tax(cents):
    return cents // 5


def total(cents):
    return cents + tax(cents)


def label(n):
    return f"I-{n}"
''',
    "stock": '''"""Stock: counts what is there and says that it was reserved."""


def accepts(command):
    return command["quantity"] > 0


def emits(command):
    return "stock.reserved" if command["left"] >= 0 else None


def left(stock, wanted):
    return stock - wanted


def counted(counts):
    return sum(counts)


def label(sku, n):
    return f"{sku}-{n}"
''',
    "notices": '''"""Notices: tells customers what was reserved."""


def hears(topic):
    return topic == "stock.reserved"


def stores(event):
    return "sku" in event


def serves(path):
    return path == "/mail"


def greeting(name):
    return "Dear " + name


def clean(text):
    return text.strip()


def subject(text):
    return text[:40]


def lines(lines):
    return lines[:]


def label(n):
    return f"N-{n}"
''',
}
"""The wanted source of each component. `accepts`, `emits`, `hears`, `stores` and `serves` are what the kit's process
of a component asks it, one for each stage of a message's way."""

SOURCE_PATH = {component: f"{component}/handler.py" for component in COMPONENTS}
