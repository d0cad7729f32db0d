// Package ec2 lets an Auto Scaling group have as many machines as package scale says, and ends those
// that it names. The name of each instance ends with the id of its machine, as in
// a10g-i-0123456789abcdef0.
//
// Machines that have to stay are protected from scale-in, so that the group takes none of them when
// its number is lowered, and none for balance between zones.
package ec2

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
	"github.com/aws/smithy-go"

	"github.com/comfyhub/comfyhub/internal/scale"
)

// Group is a [scale.Provider].
type Group struct {
	// Name is that of the Auto Scaling group, and Region where it is. Default: what the environment or
	// the machine says.
	Name, Region string
	// Options are for tests.
	Options []func(*config.LoadOptions) error
}

const (
	// answerWithin bounds one attempt of a call, and attempts how many there are.
	answerWithin = 10 * time.Second
	attempts     = 3
	// protectAtOnce is how many machines one call may protect.
	protectAtOnce = 50
)

// machineID is the id of a machine at the end of an instance's name.
var machineID = regexp.MustCompile(`(?:^|[^0-9A-Za-z])(i-[0-9a-f]{8}(?:[0-9a-f]{9})?)$`)

// idOf is the id of the machine of an instance; empty if its name has none.
func idOf(instance string) string {
	if m := machineID.FindStringSubmatch(instance); m != nil {
		return m[1]
	}
	return ""
}

// Set implements [scale.Provider].
func (g Group) Set(ctx context.Context, c scale.Change) error {
	client := awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) { t.DisableKeepAlives = true }) // calls are rare
	options := []func(*config.LoadOptions) error{config.WithRetryMaxAttempts(attempts), config.WithHTTPClient(client)}
	if g.Region != "" {
		options = append(options, config.WithRegion(g.Region))
	}
	loaded, err := config.LoadDefaultConfig(ctx, append(options, g.Options...)...)
	if err != nil {
		return fmt.Errorf("AWS: %w", err)
	}
	if loaded.Region == "" {
		return errors.New("which region? Neither the Caddyfile nor the environment names one")
	}
	s := &session{api: autoscaling.NewFromConfig(loaded), name: g.Name}
	return short(s.set(ctx, c))
}

// session is one change of a group.
type session struct {
	api  *autoscaling.Client
	name string
	// machines are those of the group, by id.
	machines map[string]types.Instance
}

func (s *session) set(ctx context.Context, c scale.Change) error {
	within, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	out, err := s.api.DescribeAutoScalingGroups(within, &autoscaling.DescribeAutoScalingGroupsInput{AutoScalingGroupNames: []string{s.name}})
	if err != nil {
		return err
	}
	if len(out.AutoScalingGroups) != 1 {
		return fmt.Errorf("there is no Auto Scaling group %s in this region", s.name)
	}
	group := out.AutoScalingGroups[0]
	s.machines = map[string]types.Instance{}
	for _, m := range group.Instances {
		s.machines[aws.ToString(m.InstanceId)] = m
	}
	desired := int(aws.ToInt32(group.DesiredCapacity))
	if err := s.protect(ctx, c, desired); err != nil {
		return err
	}
	ended, err := s.end(ctx, c.Remove)
	if err != nil {
		return err
	}
	desired -= ended
	wanted := min(c.Wanted, int(aws.ToInt32(group.MaxSize)))
	if wanted != desired {
		within, cancel := context.WithTimeout(ctx, answerWithin)
		defer cancel()
		_, err := s.api.SetDesiredCapacity(within, &autoscaling.SetDesiredCapacityInput{AutoScalingGroupName: &s.name, DesiredCapacity: aws.Int32(int32(wanted))}) // #nosec G115 -- scale.MaxMachines at most
		if err != nil {
			return err
		}
	}
	if wanted < c.Wanted {
		return fmt.Errorf("the group may have %d machines at most, and %d are wanted", wanted, c.Wanted)
	}
	return nil
}

// protect keeps the group from ending machines that have to stay. If there are to be fewer, it lets it
// end those that have not joined.
func (s *session) protect(ctx context.Context, c scale.Change, desired int) error {
	var stay, may []string
	keep := ids(c.Keep)
	for id, m := range s.machines {
		protected := aws.ToBool(m.ProtectedFromScaleIn)
		switch {
		case m.LifecycleState != types.LifecycleStateInService: // others cannot be protected, and are not chosen
		case slices.Contains(keep, id) && !protected:
			stay = append(stay, id)
		case !slices.Contains(keep, id) && protected && c.Wanted+len(c.Remove) < desired:
			may = append(may, id)
		}
	}
	for protected, list := range map[bool][]string{true: stay, false: may} {
		slices.Sort(list)
		for some := range slices.Chunk(list, protectAtOnce) {
			within, cancel := context.WithTimeout(ctx, answerWithin)
			_, err := s.api.SetInstanceProtection(within, &autoscaling.SetInstanceProtectionInput{AutoScalingGroupName: &s.name, InstanceIds: some, ProtectedFromScaleIn: aws.Bool(protected)})
			cancel()
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// end ends the machines of instances, and returns by how many it has lowered the group's number. Those
// that end already, or are gone, were told before.
func (s *session) end(ctx context.Context, remove []string) (ended int, err error) {
	for _, name := range remove {
		id := idOf(name)
		if id == "" {
			return ended, fmt.Errorf("the name of the instance %s does not end with the id of its machine, as in a10g-i-0123456789abcdef0", name)
		}
		m, there := s.machines[id]
		if !there || strings.HasPrefix(string(m.LifecycleState), "Terminat") {
			continue
		}
		within, cancel := context.WithTimeout(ctx, answerWithin)
		_, err := s.api.TerminateInstanceInAutoScalingGroup(within, &autoscaling.TerminateInstanceInAutoScalingGroupInput{InstanceId: &id, ShouldDecrementDesiredCapacity: aws.Bool(true)})
		cancel()
		if err != nil {
			return ended, err
		}
		ended++
	}
	return ended, nil
}

func ids(instances []string) (list []string) {
	for _, name := range instances {
		if id := idOf(name); id != "" {
			list = append(list, id)
		}
	}
	return list
}

// short is what AWS has said, without what only AWS can use.
func short(err error) error {
	if e, ok := errors.AsType[smithy.APIError](err); ok {
		return fmt.Errorf("AWS: %s: %s", e.ErrorCode(), e.ErrorMessage())
	}
	return err
}
