package schedule

import (
	"strconv"
	"strings"

	"github.com/comfyhub/comfyhub/internal/pyjson"
)

// Encode returns what an [Estimator] needs of a structure as a short text made of hashes and a
// number.
func (s Structure) Encode() string {
	return s.Key + ":" + s.Kind + ":" + strconv.FormatFloat(s.Work, 'g', 6, 64)
}

// DecodeStructure reads a text of [Structure.Encode]; false if it cannot, as another version may
// have written it.
func DecodeStructure(text string) (Structure, bool) {
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] == "" {
		return Structure{}, false
	}
	work, err := strconv.ParseFloat(parts[2], 64)
	if err != nil || !(work >= 1e-3 && work <= maxWork) {
		return Structure{}, false
	}
	return Structure{Key: parts[0], Kind: parts[1], Work: work}, true
}

// Shape returns the text under which the run time of a graph is stored; "" for what is no graph.
func Shape(graph pyjson.Value) string {
	s, ok := Parsed(graph)
	if !ok {
		return ""
	}
	return s.Encode()
}
