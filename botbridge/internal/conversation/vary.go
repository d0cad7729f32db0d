package conversation

import (
	"github.com/comfyhub/comfyhub/botbridge/internal/request"
	"github.com/comfyhub/comfyhub/botbridge/internal/workflow"
)

// How much a subtle and a strong variation change a picture, where a workflow takes one.
const (
	subtleStrength = 0.35
	strongStrength = 0.75
)

// varies reports whether a request's pictures have subtle and strong variations.
func (rep *repertoire) varies(rec request.Record) bool {
	c := rep.byName[rec.Command]
	if c == nil {
		return false
	}
	better := rep.byName[rep.vary]
	return c.Takes(workflow.Seed) || better != nil && better.Takes(workflow.Strength) && better.FromOne()
}
