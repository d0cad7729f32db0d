package sim

import (
	"slices"

	"github.com/comfyhub/comfyhub/internal/pyjson"
	"github.com/comfyhub/comfyhub/internal/python"
)

// schedule orders the nodes of a run. A node is ready when all nodes it waits for
// are done. Among ready nodes, those that lead to pictures early come first.
type schedule struct {
	run      *run
	pending  []string                   // in the order they were added
	blocked  map[string]int             // how many nodes (or pending async work) a node waits for
	blocking map[string][]string        // the nodes that wait for a node, in order of discovery
	edges    map[string]map[string]bool // the same nodes as a set
}

func newSchedule(r *run) *schedule {
	return &schedule{run: r, blocked: map[string]int{}, blocking: map[string][]string{}, edges: map[string]map[string]bool{}}
}

// add adds a node and everything uncached that it needs to the schedule. It fails
// on a link to a missing node, which kills a real worker.
func (s *schedule) add(id string) *exception {
	todo := []string{id}
	type edge struct{ from, to string }
	var edges []edge
	for len(todo) > 0 {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if _, ok := s.blocked[id]; ok {
			continue
		}
		node := s.run.node(id)
		if node == nil {
			return raise("comfy_execution.graph.NodeNotFoundError", "Node %s not found", id)
		}
		if node.Object("inputs") == nil {
			return raise("KeyError", "'inputs'")
		}
		s.pending = append(s.pending, id)
		s.blocked[id] = 0
		cl, _ := s.run.proc.cat.class(node.String("class_type"))
		for name, v := range node.Object("inputs").All() {
			if !isLink(v) {
				continue
			}
			from := linkSource(v)
			in, _ := cl.input(name)
			if isLazy(in) && !cl.eager || s.run.isCached(from) {
				continue
			}
			todo = append(todo, from)
			edges = append(edges, edge{from, id})
		}
	}
	for _, e := range edges {
		if exc := s.link(e.from, e.to); exc != nil {
			return exc
		}
	}
	return nil
}

func isLazy(in input) bool {
	v, _ := in.options.Get("lazy")
	return v != nil && python.Bool(v)
}

// link makes one node wait for another.
func (s *schedule) link(from, to string) *exception {
	if s.run.isCached(from) {
		return nil
	}
	if exc := s.add(from); exc != nil {
		return exc
	}
	if s.edges[from] == nil {
		s.edges[from] = map[string]bool{}
	}
	if !s.edges[from][to] {
		s.edges[from][to] = true
		s.blocking[from] = append(s.blocking[from], to)
		s.blocked[to]++
	}
	return nil
}

// inhibit takes nodes out of the schedule, which run as copies instead.
func (s *schedule) inhibit(ids []string) {
	for _, id := range ids {
		if _, known := s.blocked[id]; !known {
			continue
		}
		for _, to := range s.blocking[id] {
			s.blocked[to]--
		}
		delete(s.blocking, id)
		delete(s.edges, id)
		s.pending = slices.DeleteFunc(s.pending, func(p string) bool { return p == id })
	}
}

func (s *schedule) hold(id string)    { s.blocked[id]++ }
func (s *schedule) release(id string) { s.blocked[id]-- }

func (s *schedule) done(id string) {
	s.pending = slices.DeleteFunc(s.pending, func(p string) bool { return p == id })
	for _, to := range s.blocking[id] {
		s.blocked[to]--
	}
	delete(s.blocking, id)
	delete(s.edges, id)
}

// next picks a ready node, or "" if there is none. It prefers an output or an
// async node, then a node one step from an output, then two steps.
func (s *schedule) next() string {
	var ready []string
	for _, id := range s.pending {
		if s.blocked[id] == 0 {
			ready = append(ready, id)
		}
	}
	for _, id := range ready {
		if cl := s.run.class(id); cl.outputNode || cl.async {
			return id
		}
	}
	isOutput := func(id string) bool { return s.run.class(id).outputNode }
	for _, id := range ready {
		if slices.ContainsFunc(s.blocking[id], isOutput) {
			return id
		}
	}
	for _, id := range ready {
		for _, to := range s.blocking[id] {
			if slices.ContainsFunc(s.blocking[to], isOutput) {
				return id
			}
		}
	}
	if len(ready) > 0 {
		return ready[0]
	}
	return ""
}

// blame picks the node to blame for a cycle made by an expansion.
func (s *schedule) blame() string {
	for _, id := range s.pending {
		if s.run.display(id) != id {
			return s.run.display(id)
		}
	}
	return s.pending[0]
}

// subgraph is what an expanding node returns: new nodes and where its own
// outputs come from.
type subgraph struct {
	nodes   *pyjson.Object // id to node
	outputs []pyjson.Value // a link into nodes or to an existing node, or a literal
}
