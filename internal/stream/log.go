package stream

// detail is how much of a sequence a log keeps.
type detail uint8

const (
	// whole keeps everything except outdated previews and progress.
	whole detail = iota
	// short keeps the start, what is executing, results and the end, for a log that
	// outgrew its memory limit. The rest is in /history.
	short
	// last keeps the start, the newest executing and progress_state, and the end:
	// the client did not come back in time for more.
	last
)

// log keeps the messages of one sequence, in order, until a socket is connected and
// has finished with other prompts.
type log struct {
	frames []*frame // nil where a frame was dropped
	gaps   int      // how many are nil
	newest [Note + 1]int
	detail detail
	// memory and results are in bytes; results is the part of memory taken by
	// results.
	memory, results int64
	spill           *spillFile
}

// add keeps f if the log's detail calls for it.
func (g *log) add(f *frame) {
	if !g.keeps(f) {
		return
	}
	if f.kind.shrinks() || g.detail == last && f.kind == Executing {
		g.drop(g.newest[f.kind] - 1)
	}
	g.frames = append(g.frames, f)
	g.newest[f.kind] = len(g.frames)
	g.memory += f.memory()
	if f.kind == Result {
		g.results += int64(len(f.data))
	}
	g.compact()
}

func (g *log) keeps(f *frame) bool {
	switch {
	case f.vital || g.detail == whole:
		return true
	case g.detail == short:
		return f.kind == Executing || f.kind == Result || f.kind == ProgressState
	}
	return f.kind == Executing || f.kind == ProgressState
}

// drop removes the frame at index i, if there is one.
func (g *log) drop(i int) {
	if i < 0 || g.frames[i] == nil {
		return
	}
	f := g.frames[i]
	g.frames[i] = nil
	g.gaps++
	g.memory -= f.memory()
	if f.kind == Result {
		g.results -= int64(len(f.data))
	}
}

// compact closes the gaps once they make up half of the log: each step of a long
// sampling leaves three.
func (g *log) compact() {
	if g.gaps < 32 || g.gaps*2 < len(g.frames) {
		return
	}
	kept := make([]*frame, 0, len(g.frames)-g.gaps)
	g.newest = [Note + 1]int{}
	for f := range g.each {
		kept = append(kept, f)
		g.newest[f.kind] = len(kept)
	}
	g.frames, g.gaps = kept, 0
}

// shorten lowers the detail; it never raises it.
func (g *log) shorten(to detail) {
	if to <= g.detail {
		return
	}
	g.detail = to
	for i, f := range g.frames {
		if f != nil && (!g.keeps(f) || to == last && !f.vital && g.newest[f.kind] != i+1) {
			g.drop(i)
		}
	}
	if to == last {
		g.spill.release() // results are no longer kept
		g.spill = nil
	}
	g.compact()
}

// each yields the frames that are kept, in order.
func (g *log) each(yield func(*frame) bool) {
	for _, f := range g.frames {
		if f != nil && !yield(f) {
			return
		}
	}
}

// latest returns the newest frame of kind k, which must be Executing or a kind of
// which only the newest is kept; nil if there is none.
func (g *log) latest(k Kind) *frame {
	if i := g.newest[k]; i > 0 {
		return g.frames[i-1]
	}
	return nil
}

// free drops everything.
func (g *log) free() {
	g.spill.release()
	*g = log{detail: g.detail}
}
