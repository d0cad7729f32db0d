# Nothing else is open: not Caddy's admin endpoint, not the operators' site, no SSH. Sessions of SSM
# reach the machines (aws ssm start-session --target ...).

data "aws_vpc" "this" {
  id = var.vpc_id
}

resource "aws_security_group" "hub" {
  name        = "comfyhub"
  description = "The hub"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "https" {
  for_each          = { tcp = "HTTP/2", udp = "HTTP/3" }
  security_group_id = aws_security_group.hub.id
  description       = "Users, and GPU machines elsewhere: ${each.value}"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = each.key
  from_port         = 443
  to_port           = 443
}

resource "aws_vpc_security_group_ingress_rule" "http" {
  security_group_id = aws_security_group.hub.id
  description       = "The certificate, and the way to HTTPS"
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "tcp"
  from_port         = 80
  to_port           = 80
}

resource "aws_vpc_security_group_ingress_rule" "gossip" {
  for_each                     = toset(["tcp", "udp"])
  security_group_id            = aws_security_group.hub.id
  description                  = "Gossip of the GPU machines"
  referenced_security_group_id = aws_security_group.gpu.id
  ip_protocol                  = each.key
  from_port                    = 7946
  to_port                      = 7946
}

resource "aws_vpc_security_group_egress_rule" "hub" {
  security_group_id = aws_security_group.hub.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}

# Machines of your own, in this VPC and not in the group below, want it, too.
resource "aws_security_group" "gpu" {
  name        = "comfyhub-gpu"
  description = "GPU machines of the hub"
  vpc_id      = var.vpc_id
}

resource "aws_vpc_security_group_ingress_rule" "gpu_gossip" {
  for_each                     = { tcp = 7947, udp = 7946 } # the agent's door is beside gossip
  security_group_id            = aws_security_group.gpu.id
  description                  = "The hub"
  referenced_security_group_id = aws_security_group.hub.id
  ip_protocol                  = each.key
  from_port                    = 7946
  to_port                      = each.value
}

resource "aws_vpc_security_group_egress_rule" "gpu" {
  security_group_id = aws_security_group.gpu.id
  cidr_ipv4         = "0.0.0.0/0"
  ip_protocol       = "-1"
}
