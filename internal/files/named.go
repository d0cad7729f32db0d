package files

import (
	"encoding/json"
	"fmt"

	"github.com/comfyhub/comfyhub/internal/job"
)

// Inputs are the files that a job's graph names, as stored in job.Body.Inputs: what they meant at
// acceptance, and where they are in the graph.
type Inputs struct {
	Version int `json:"v"`
	// Pins are encoded, see [Pins.Encode].
	Pins   json.RawMessage `json:"pins"`
	Places []InputPlace    `json:"places"`
	// Held are the ids of the held pictures that the graph names.
	Held []string `json:"held,omitempty"`
}

// InputPlace is one literal of the graph that names a file.
type InputPlace struct {
	// Path leads from the root of the graph to the literal.
	Path  []string    `json:"path"`
	Value string      `json:"value"`
	Ref   job.FileRef `json:"ref"`
}

// DecodeInputs reads job.Body.Inputs; no data means no inputs.
func DecodeInputs(data []byte) (Inputs, error) {
	var in Inputs
	if len(data) == 0 {
		return in, nil
	}
	if err := json.Unmarshal(data, &in); err != nil {
		return Inputs{}, fmt.Errorf("files: inputs of a job: %w", err)
	}
	return in, nil
}
