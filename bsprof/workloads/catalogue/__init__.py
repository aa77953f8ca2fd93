"""Well-known architectures as data: settings, published sizes and where they were published."""
