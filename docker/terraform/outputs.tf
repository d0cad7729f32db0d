output "url" {
  value = "https://${var.host}"
}

output "address" {
  description = "For the DNS record, if zone_id is empty."
  value       = aws_eip.hub.public_ip
}

output "gpu_security_group_id" {
  description = "For GPU machines of your own in the VPC."
  value       = aws_security_group.gpu.id
}

output "join" {
  description = "What the agents of such machines join."
  value       = "${aws_network_interface.hub.private_ip}:7946"
}
