"""The allocator's rules written down literally: no index, every question asked of everything.

Independent of the package on purpose. Free blocks are not kept at all: they are the gaps between
what is taken, within what is mapped. Also writes the history of a run as torch records it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

MIB = 1 << 20


@dataclass
class Taken:
    start: int
    size: int
    requested: int
    waiting: bool = False


@dataclass
class Segment:
    address: int
    size: int
    stream: int
    small: bool
    grows: bool = False
    page: int = 0
    pages: set[int] = field(default_factory=set)
    taken: list[Taken] = field(default_factory=list)
    idle_since: int = 0

    def mapped_runs(self):
        if not self.grows:
            return [(self.address, self.address + self.size)]
        runs = []
        for page in sorted(self.pages):
            start = self.address + page * self.page
            if runs and runs[-1][1] == start:
                runs[-1] = (runs[-1][0], start + self.page)
            else:
                runs.append((start, start + self.page))
        return runs

    def gaps(self):
        """Free blocks as (start, size)."""
        found = []
        for begin, end in self.mapped_runs():
            here = begin
            for taken in sorted(self.taken, key=lambda t: t.start):
                if begin <= taken.start < end:
                    if taken.start > here:
                        found.append((here, taken.start - here))
                    here = taken.start + taken.size
            if here < end:
                found.append((here, end - here))
        return found


class OutOfMemory(Exception):
    pass


class Literal:
    """Options by name; `place(size)` says where the driver puts a segment."""

    def __init__(
        self,
        capacity,
        place,
        *,
        max_split=None,
        rounding=20 * MIB,
        fraction=None,
        threshold=None,
        expandable=False,
        large=20 * MIB,
        divisions=1,
    ):
        self.capacity = capacity
        self.place = place
        self.max_split = max_split
        self.rounding = rounding
        self.allowed = None if fraction is None else int(fraction * capacity)
        self.threshold = threshold
        self.expandable = expandable
        self.large = large
        self.divisions = divisions
        self.segments: list[Segment] = []
        self.history: list[dict] = []
        self.searches = 0
        self.retries = 0
        self.ooms = 0

    # What torch counts.

    @property
    def allocated(self):
        return sum(t.size for s in self.segments for t in s.taken if not t.waiting)

    @property
    def active(self):
        return sum(t.size for s in self.segments for t in s.taken)

    @property
    def requested(self):
        return sum(t.requested for s in self.segments for t in s.taken)

    @property
    def reserved(self):
        return sum(s.page * len(s.pages) if s.grows else s.size for s in self.segments)

    @property
    def inactive_split(self):
        return sum(size for s in self.segments if s.taken and not s.grows for _, size in s.gaps())

    def layout(self):
        """Every block of every segment: start, size, what it is."""
        return sorted(
            [
                (t.start, t.size, "waiting" if t.waiting else "taken")
                for s in self.segments
                for t in s.taken
            ]
            + [(start, size, "free") for s in self.segments for start, size in s.gaps()]
        )

    # What a program asks.

    def allocate(self, requested, stream=0):
        size = self.rounded(requested)
        small = size <= MIB
        found = self.search(size, small, stream)
        if found is None:
            found = self.ask(size, small, stream)
        segment, start, room = found
        rest = room - size
        if small or self.expandable:
            splits = rest >= 512
        else:
            splits = rest > MIB and (self.max_split is None or size < self.max_split)
        taken = Taken(start, size if splits else room, requested)
        segment.taken.append(taken)
        if splits:
            segment.idle_since = self.searches
        self.note("alloc", start, requested, stream)
        return taken

    def free(self, taken):
        segment = self.owner(taken)
        self.note("free_requested", taken.start, taken.requested, segment.stream)
        self.give_back(taken)

    def free_later(self, taken):
        taken.waiting = True
        self.note("free_requested", taken.start, taken.requested, self.owner(taken).stream)

    def give_back(self, taken):
        segment = self.owner(taken)
        self.note("free_completed", taken.start, taken.requested, segment.stream)
        segment.taken.remove(taken)
        taken.waiting = False
        segment.idle_since = self.searches

    def empty_cache(self):
        waiting = [t for s in self.segments for t in s.taken if t.waiting]
        for taken in self.in_order_of_waiting(waiting):
            self.give_back(taken)
        for small in (False, True):
            free = [
                (s.stream, size, start, s)
                for s in self.segments
                if s.small == small
                for start, size in s.gaps()
            ]
            free.sort(key=lambda item: item[:3])
            for _, size, _, segment in free:
                if not segment.grows and size == segment.size:
                    self.release(segment)
            for _, size, start, segment in free:
                if segment.grows:
                    self.unmap(segment, start, size)

    # How it answers.

    def rounded(self, requested):
        if requested < 512:
            return 512
        if self.divisions > 1 and requested > 512 * self.divisions:
            power = 1
            while power * 2 <= requested:
                power *= 2
            for step in range(self.divisions + 1):
                if power + step * power // self.divisions >= requested:
                    return power + step * power // self.divisions
        return -(-requested // 512) * 512

    def segment_size(self, size):
        if size <= MIB:
            return 2 * MIB
        if size < 10 * MIB:
            return self.large
        return -(-size // (2 * MIB)) * 2 * MIB

    def search(self, size, small, stream):
        if not small:
            self.searches += 1
        fitting = sorted(
            (
                (room, start, segment)
                for segment in self.segments
                if segment.small == small and segment.stream == stream
                for start, room in segment.gaps()
                if room >= size
            ),
            key=lambda item: item[:2],
        )
        if not fitting:
            return None
        choice = 0
        if self.expandable:
            while choice + 1 < len(fitting) and self.reach(*fitting[choice + 1]) < self.reach(
                *fitting[choice]
            ):
                choice += 1
        room, start, segment = fitting[choice]
        if self.max_split is not None:
            if size < self.max_split and room >= self.max_split:
                return None
            if size >= self.max_split and room >= size + self.rounding:
                return None
        return segment, start, room

    def reach(self, room, start, segment):
        """Free bytes plus the unmapped ones right behind them."""
        end = start + room
        pages = segment.size // segment.page
        page, rest = divmod(end - segment.address, segment.page)
        while not rest and page < pages and page not in segment.pages:
            end += segment.page
            page += 1
        return end - start

    def ask(self, size, small, stream):
        if self.allowed is not None and self.threshold is not None:
            self.collect()
        found = self.driver(size, small, stream)
        if found is None and self.max_split is not None and self.drop_oversize(size, small, stream):
            found = self.driver(size, small, stream)
        if found is None:
            self.empty_cache()
            self.retries += 1
            found = self.driver(size, small, stream)
        if found is None:
            self.ooms += 1
            self.note("oom", self.capacity - self.reserved, size, stream)
            raise OutOfMemory
        return found

    def driver(self, size, small, stream):
        wanted = self.segment_size(size)
        if self.allowed is not None and self.reserved + wanted > self.allowed:
            return None
        if self.expandable:
            return self.grow(size, small, stream)
        if self.capacity is not None and self.reserved + wanted > self.capacity:
            return None
        segment = Segment(self.place(wanted), wanted, stream, small)
        self.segments.append(segment)
        self.note("segment_alloc", segment.address, wanted, stream)
        return segment, segment.address, wanted

    def grow(self, size, small, stream):
        """Lowest run of addresses, next to or in a hole, that is free or unmapped."""
        for segment in sorted(self.segments, key=lambda s: s.address):
            if segment.small != small or segment.stream != stream:
                continue
            for begin, end in self.runs(segment):
                if end - begin >= size:
                    return self.map_run(segment, begin, size)
        page = 2 * MIB if small else self.large
        total = -(-(self.capacity + self.capacity // 8) // page) * page
        segment = Segment(self.place(total), total, stream, small, grows=True, page=page)
        self.segments.append(segment)
        return self.map_run(segment, segment.address, size)

    def runs(self, segment):
        """Runs of free or unmapped addresses that have a hole in them.

        A run is looked at from each hole on, with the free block right before that hole.
        """
        pieces = [(start, size, True) for start, size in segment.gaps()]
        edges = [segment.address]
        for begin, end in segment.mapped_runs():
            edges += [begin, end]
        edges.append(segment.address + segment.size)
        for begin, end in zip(edges[::2], edges[1::2], strict=True):
            if end > begin:
                pieces.append((begin, end - begin, False))
        pieces.sort()
        for number, (start, size, mapped) in enumerate(pieces):
            if mapped:
                continue
            begin = start
            if number and pieces[number - 1][2]:
                before = pieces[number - 1]
                if before[0] + before[1] == start:
                    begin = before[0]
            end = start + size
            for after in pieces[number + 1 :]:
                if after[0] != end:
                    break
                end += after[1]
            yield begin, end

    def map_run(self, segment, begin, size):
        """Maps holes from `begin` on until `size` bytes are there, one hole at a time."""
        while True:
            there = next((room for start, room in segment.gaps() if start == begin), 0)
            if there >= size:
                return segment, begin, there
            hole = begin + there
            first = (hole - segment.address) // segment.page
            last = first
            while last < segment.size // segment.page and last not in segment.pages:
                last += 1
            wanted = min(-(-(size - there) // segment.page), last - first)
            grown = wanted * segment.page
            if self.capacity is not None and self.reserved + grown > self.capacity:
                return None
            segment.pages |= set(range(first, first + wanted))
            self.note("segment_map", hole, grown, segment.stream)

    def unmap(self, segment, start, size):
        first = -(-(start - segment.address) // segment.page)
        last = (start + size - segment.address) // segment.page
        if last <= first:
            return
        segment.pages -= set(range(first, last))
        self.note(
            "segment_unmap",
            segment.address + first * segment.page,
            (last - first) * segment.page,
            segment.stream,
        )
        if not segment.pages:
            self.segments.remove(segment)

    def release(self, segment):
        self.segments.remove(segment)
        self.note("segment_free", segment.address, segment.size, segment.stream)

    def drop_oversize(self, size, small, stream):
        wanted = max(size, self.max_split)
        own = [s for s in self.segments if s.small == small and s.stream == stream and not s.grows]
        whole = sorted((s for s in own if not s.taken), key=lambda s: (s.size, s.address))
        enough = [s for s in whole if s.size >= wanted]
        if enough:
            self.release(enough[0])
            return True
        released = 0
        for segment in reversed(whole):
            if released >= wanted or segment.size < self.max_split:
                break
            released += segment.size
            self.release(segment)
        return released >= wanted

    def collect(self):
        limit = int(self.threshold * self.allowed)
        if self.reserved <= limit:
            return
        wanted = self.reserved - limit
        reclaimed = 0
        while reclaimed < wanted:
            idle = [s for s in self.segments if not s.small and not s.taken]
            if not idle:
                return
            mean = sum(self.searches - s.idle_since for s in idle) / len(idle)
            for segment in sorted(idle, key=lambda s: (s.stream, s.size, s.address)):
                if self.searches - segment.idle_since >= mean:
                    reclaimed += segment.size
                    self.release(segment)

    def in_order_of_waiting(self, waiting):
        requests = {
            entry["addr"]: number
            for number, entry in enumerate(self.history)
            if entry["action"] == "free_requested"
        }
        return sorted(waiting, key=lambda taken: requests[taken.start])

    def owner(self, taken):
        return next(s for s in self.segments if any(t is taken for t in s.taken))

    def note(self, action, address, size, stream):
        self.history.append(
            {
                "action": action,
                "addr": address,
                "size": size,
                "stream": stream,
                "pool_id": [0, 0],
                "time_us": len(self.history),
                "frames": [],
            }
        )
